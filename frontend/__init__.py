"""What a person sees: figures (pure), what they read, pages, and the static modules that keep pages live."""
