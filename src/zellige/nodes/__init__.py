"""Arrays and groups: what they are, how they come to be, change and go."""
