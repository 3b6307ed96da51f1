"""Real models that nobody here made, collected from installed packages by name: nothing of them is kept here."""
