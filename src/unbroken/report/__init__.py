"""What a user sees of the runs: status, account, forecast, advice, the page and notifications."""
