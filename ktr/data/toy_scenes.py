VOCABULARY = ("red", "blue", "then", "first", "last", ".", "?", "2")
