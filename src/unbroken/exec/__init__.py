"""`unbroken exec`: the life of a segment around a program of anybody's, where that was called."""
