"""Why an application stands, is late or loses messages, and what to do about it."""
