"""What other libraries need to be paced: one module each, which imports that library and nothing else of its kind."""
