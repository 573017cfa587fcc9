"""Report on the runs to the user: status, account, forecast, advice, the page and notifications."""
