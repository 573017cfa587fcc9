"""Run `unbroken exec`: the life of a segment around any program, where that was called."""
