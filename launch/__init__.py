"""Starting the real service from a terminal: the demo, the development server, and the tests' own."""
