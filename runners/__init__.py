"""PromptEncoder, SpeechEngine and what schedules them."""
