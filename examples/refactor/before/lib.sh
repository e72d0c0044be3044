# What the program can say.
greet() { printf 'hello, %s\n' "$1"; }
