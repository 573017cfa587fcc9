# Draws from a distribution by a random walk (Metropolis), in segments; keeps the contract (docs/contract.md).
# Without unbroken:  UNBROKEN_GOAL=4000 UNBROKEN_SAVE=. Rscript walk.R

told <- function() { stop <- Sys.getenv("UNBROKEN_STOP"); nzchar(stop) && file.exists(stop) }
goal <- as.integer(Sys.getenv("UNBROKEN_GOAL", "4000"))
save_to <- Sys.getenv("UNBROKEN_SAVE", ".")
resume <- Sys.getenv("UNBROKEN_RESUME")
save_seconds <- as.numeric(Sys.getenv("UNBROKEN_SAVE_SECONDS", "60"))
pause <- as.numeric(Sys.getenv("PAUSE_SECONDS", "0"))

log_density <- function(x) -sum(100 * (x[-1] - x[-length(x)]^2)^2 + (1 - x[-length(x)])^2) / 20 # a banana

progress <- function(step) sprintf('{"done": %d, "goal": %d, "unit": "draws"}', step, goal)

# Everything that the next draw depends on, the random numbers among it, in a folder that is renamed when it is whole.
handed_over <- -1L
hand_over <- function(state) {
  if (state$step == handed_over) return(invisible())
  handed_over <<- state$step
  draft <- file.path(save_to, "draft")
  unlink(draft, recursive = TRUE)
  dir.create(draft)
  saveRDS(state, file.path(draft, "state.rds"))
  writeLines(progress(state$step), file.path(draft, "progress.json"))
  invisible(file.rename(draft, file.path(save_to, sprintf("%09d.ready", state$step))))
}

if (nzchar(resume)) {
  state <- readRDS(file.path(resume, "state.rds"))
  assign(".Random.seed", state$seed, envir = globalenv())
} else {
  set.seed(1)
  state <- list(step = 0L, x = c(0, 0), seed = .Random.seed)
}

table <- file("draws.csv", open = "w")
writeLines("step,x,y", table)
saved_at <- proc.time()[["elapsed"]]
while (state$step < goal && !told()) {
  proposal <- state$x + rnorm(2, sd = 0.3)
  if (log(runif(1)) < log_density(proposal) - log_density(state$x)) state$x <- proposal
  state$step <- state$step + 1L
  state$seed <- .Random.seed
  writeLines(sprintf("%d,%.12g,%.12g", state$step, state$x[1], state$x[2]), table)
  flush(table) # a state counts once a later row is in the file
  Sys.sleep(pause)
  if (proc.time()[["elapsed"]] - saved_at >= save_seconds) {
    hand_over(state)
    saved_at <- proc.time()[["elapsed"]]
  }
}
close(table)
hand_over(state)
quit(save = "no", status = if (state$step < goal) 85 else 0)
