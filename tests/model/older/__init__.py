"""Models that older versions wrote, as their users have them, and how they were made."""
