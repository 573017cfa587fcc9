% Draws from a distribution by a random walk (Metropolis), in segments; keeps the contract (docs/contract.md).
% For MATLAB (R2019a or newer) and GNU Octave (7 or newer).
% Without unbroken:  UNBROKEN_GOAL=4000 UNBROKEN_SAVE=. octave-cli simulate.m

function simulate()
  is_octave = exist('OCTAVE_VERSION', 'builtin') > 0;
  if is_octave
    confirm_recursive_rmdir(false);
  end
  goal = number_from('UNBROKEN_GOAL', 4000);
  resume = getenv('UNBROKEN_RESUME');
  save_seconds = number_from('UNBROKEN_SAVE_SECONDS', 60);
  seconds_to_rest = number_from('PAUSE_SECONDS', 0);
  handed_over = -1;

  if isempty(resume)
    rng(1, 'twister');
    state = struct('step', 0, 'x', [0 0], 'random', rng());
  else
    loaded = load(fullfile(resume, 'state.mat'));
    state = loaded.state;
    rng(state.random);
  end

  table = fopen('draws.csv', 'w');
  fprintf(table, 'step,x,y\n');
  saved_at = tic();
  while state.step < goal && ~isfile(getenv('UNBROKEN_STOP'))
    proposal = state.x + 0.3 * randn(1, 2);
    if log(rand()) < log_density(proposal) - log_density(state.x)
      state.x = proposal;
    end
    state.step = state.step + 1;
    state.random = rng();
    fprintf(table, '%d,%.12g,%.12g\n', state.step, state.x);
    if is_octave
      fflush(table); % as MATLAB does by itself: a state counts once a later row is in the file
    end
    pause(seconds_to_rest);
    if toc(saved_at) >= save_seconds
      handed_over = hand_over(state, goal, handed_over);
      saved_at = tic();
    end
  end
  fclose(table);
  hand_over(state, goal, handed_over);
  if state.step < goal
    exit(85);
  end
  exit(0);
end

% Everything that the next draw depends on, the random numbers among it, in a folder that is renamed when it is whole.
function step = hand_over(state, goal, before)
  step = state.step;
  if step == before
    return
  end
  folder = getenv('UNBROKEN_SAVE');
  draft = fullfile(folder, 'draft');
  if isfolder(draft)
    rmdir(draft, 's');
  end
  mkdir(draft);
  save(fullfile(draft, 'state.mat'), 'state', '-v7');
  progress = fopen(fullfile(draft, 'progress.json'), 'w');
  fprintf(progress, '{"done": %d, "goal": %d, "unit": "draws"}', step, goal);
  fclose(progress);
  movefile(draft, fullfile(folder, sprintf('%09d.ready', step)));
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
