"""Where the time goes: `profile` records launches, `Result` counts and draws them, `roof` measures what the machine can."""
