"""Published measurements of language models, and the constants that are fitted to them."""
