% The logistic map, in steps that take a while; saves its state after each.
n = 0; x = 0.3; sums = [];
if exist('growth.mat', 'file')
  load('growth.mat');
end
while n < 60
  n = n + 1;
  for k = 1:80000
    x = 3.9 * x * (1 - x);
  end
  sums(end + 1) = x;
  save('-binary', 'growth.mat', 'n', 'x', 'sums');
  printf('%d %.17g\n', n, x);
  fflush(stdout);
end
file = fopen('sums.txt', 'w');
fprintf(file, '%.17g\n', sums);
fclose(file);
