% The contract of unbroken (docs/contract.md) for MATLAB (R2019a) and GNU Octave (7): copy this file next to your script.
classdef unbroken
  methods (Static)
    % Return the state that was saved last, the random numbers put back; [] at the very start.
    function state = resume()
      state = [];
      if ~isempty(getenv('UNBROKEN_RESUME'))
        saved = load(fullfile(getenv('UNBROKEN_RESUME'), 'state.mat'));
        rng(saved.random);
        state = saved.state;
      end
    end

    % Return true if the script should save and exit with 85.
    function answer = must_stop()
      answer = isfile(getenv('UNBROKEN_STOP'));
    end

    % Return true if a save is due: the last one always, others once the one before is taken; never without unbroken.
    function answer = must_save(is_last)
      persistent saved_at
      if isempty(saved_at)
        saved_at = tic();
      end
      is_due = toc(saved_at) >= str2double(getenv('UNBROKEN_SAVE_SECONDS'));
      is_due = is_due && isempty(dir(fullfile(getenv('UNBROKEN_SAVE'), '*.ready')));
      answer = ~isempty(getenv('UNBROKEN_SAVE')) && (is_last || is_due);
      if answer
        saved_at = tic();
      end
    end

    % Save the state, with the random numbers; `done` must be more than the last time.
    function save(state, done, goal)
      draft = fullfile(getenv('UNBROKEN_SAVE'), 'draft');
      mkdir(draft);
      random = rng();
      save(fullfile(draft, 'state.mat'), 'state', 'random', '-v7');
      file = fopen(fullfile(draft, 'progress.json'), 'w');
      fprintf(file, '{"done": %.15g, "goal": %.15g, "unit": "%s"}', done, goal, getenv('UNBROKEN_GOAL_UNIT'));
      fclose(file);
      movefile(draft, fullfile(getenv('UNBROKEN_SAVE'), sprintf('%022.6f.ready', done)));
    end
  end
end
