# The contract of unbroken (docs/contract.md) for R: copy this file next to your script and source() it.

.told <- function(name) Sys.getenv(paste0("UNBROKEN_", name)) # "" if it is not set
.saved_at <- proc.time()[["elapsed"]]

# Return the state that was saved last, the random numbers put back; NULL at the very start.
unbroken_resume <- function() {
  if (.told("RESUME") == "") return(NULL)
  saved <- readRDS(file.path(.told("RESUME"), "state.rds"))
  if (!is.null(saved$seed)) assign(".Random.seed", saved$seed, envir = globalenv())
  saved$state
}

# Return TRUE if the script should save and quit with status 85.
unbroken_must_stop <- function() file.exists(.told("STOP"))

# Return TRUE if a save is due: the last one always, others once the one before is taken; never without unbroken.
unbroken_must_save <- function(is_last) {
  now <- proc.time()[["elapsed"]]
  is_due <- isTRUE(now - .saved_at >= as.numeric(.told("SAVE_SECONDS")))
  is_due <- is_due && length(Sys.glob(file.path(.told("SAVE"), "*.ready"))) == 0
  answer <- .told("SAVE") != "" && (is_last || is_due)
  if (answer) .saved_at <<- now
  answer
}

# Save the state, with the random numbers; `done` must be more than the last time.
unbroken_save <- function(state, done, goal) {
  draft <- file.path(.told("SAVE"), "draft")
  stopifnot(dir.create(draft))
  saveRDS(list(state = state, seed = get0(".Random.seed", globalenv())), file.path(draft, "state.rds"))
  progress <- sprintf('{"done": %.15g, "goal": %.15g, "unit": "%s"}', done, goal, .told("GOAL_UNIT"))
  writeLines(progress, file.path(draft, "progress.json"))
  stopifnot(file.rename(draft, file.path(.told("SAVE"), sprintf("%022.6f.ready", done))))
}
