"""Sound: clips become log-Mel pictures, pictures get tags, and teachers vote on the tags."""
