"""The command line: words in, one engine call, words out.

May import every room below it, and does so late, inside the commands, so that `--help` starts at
once. Environment, argv and the operator's configuration file are read here and nowhere else. Start
reading at `main.entry`, then `call.verb` (what every command shares) and `scope.resolve` (which
graph is meant).
"""
