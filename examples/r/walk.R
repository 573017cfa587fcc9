# Draws from a distribution by a random walk (Metropolis), in segments; keeps the contract (docs/contract.md) by unbroken.R.
# Without unbroken:  UNBROKEN_GOAL=4000 Rscript walk.R

source("unbroken.R")
goal <- as.integer(Sys.getenv("UNBROKEN_GOAL", "4000"))
pause <- as.numeric(Sys.getenv("PAUSE_SECONDS", "0"))

log_density <- function(x) -sum(100 * (x[-1] - x[-length(x)]^2)^2 + (1 - x[-length(x)])^2) / 20 # a banana

state <- unbroken_resume()
if (is.null(state)) {
  set.seed(1)
  state <- list(step = 0L, x = c(0, 0))
}

table <- file("draws.csv", open = "w")
writeLines("step,x,y", table)
stop_now <- FALSE
while (state$step < goal && !stop_now) {
  proposal <- state$x + rnorm(2, sd = 0.3)
  if (log(runif(1)) < log_density(proposal) - log_density(state$x)) state$x <- proposal
  state$step <- state$step + 1L
  writeLines(sprintf("%d,%.12g,%.12g", state$step, state$x[1], state$x[2]), table)
  flush(table) # a state counts once a later row is in the file
  Sys.sleep(pause)
  stop_now <- unbroken_must_stop()
  if (unbroken_must_save(stop_now || state$step >= goal)) unbroken_save(state, state$step, goal)
}
close(table)
quit(save = "no", status = if (state$step < goal) 85 else 0)
