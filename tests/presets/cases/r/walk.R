# A random walk of many walkers; it saves its state in place every 200 steps, and resumes from it.
state_file <- "walk.rds"
goal <- 3000L

if (file.exists(state_file)) {
  state <- readRDS(state_file)
  .Random.seed <- state$seed
} else {
  set.seed(1)
  state <- list(step = 0L, x = numeric(20000), mean = numeric(0))
}

while (state$step < goal) {
  state$x <- state$x + rnorm(length(state$x))
  state$step <- state$step + 1L
  state$mean <- c(state$mean, mean(state$x^2))
  if (state$step %% 200L == 0L) {
    state$seed <- .Random.seed
    saveRDS(state, state_file)
  }
}
write.csv(data.frame(step = seq_along(state$mean), mean = state$mean), "mean.csv", row.names = FALSE)
