% Draws from a distribution by a random walk (Metropolis), in segments; keeps the contract (docs/contract.md) by unbroken.m.
% For MATLAB (R2019a or newer) and GNU Octave (7 or newer).
% Without unbroken:  UNBROKEN_GOAL=4000 octave-cli simulate.m

function simulate()
  is_octave = exist('OCTAVE_VERSION', 'builtin') > 0;
  goal = number_from('UNBROKEN_GOAL', 4000);
  seconds_to_rest = number_from('PAUSE_SECONDS', 0);

  state = unbroken.resume();
  if isempty(state)
    rng(1, 'twister');
    state = struct('step', 0, 'x', [0 0]);
  end

  table = fopen('draws.csv', 'w');
  fprintf(table, 'step,x,y\n');
  stop_now = false;
  while state.step < goal && ~stop_now
    proposal = state.x + 0.3 * randn(1, 2);
    if log(rand()) < log_density(proposal) - log_density(state.x)
      state.x = proposal;
    end
    state.step = state.step + 1;
    fprintf(table, '%d,%.12g,%.12g\n', state.step, state.x);
    if is_octave
      fflush(table); % as MATLAB does by itself: a state counts once a later row is in the file
    end
    pause(seconds_to_rest);
    stop_now = unbroken.must_stop();
    if unbroken.must_save(stop_now || state.step >= goal)
      unbroken.save(state, state.step, goal);
    end
  end
  fclose(table);
  if state.step < goal
    exit(85);
  end
  exit(0);
end

function value = log_density(x) % a banana
  value = -(100 * (x(2) - x(1)^2)^2 + (1 - x(1))^2) / 20;
end

function value = number_from(name, usual)
  value = str2double(getenv(name));
  if isnan(value)
    value = usual;
  end
end
