"""What every HTTP edge shares: listening within limits, TLS settings, and quiet logs of the HTTP library."""
