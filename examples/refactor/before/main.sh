. "$(dirname "$0")/lib.sh"
greet "${1:-world}"
