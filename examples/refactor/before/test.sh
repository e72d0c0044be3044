# Fails if anything is not as it should be.
set -eu
cd "$(dirname "$0")"
[ "$(sh main.sh Ada)" = "hello, Ada" ]
[ "$(sh shout.sh Ada)" = "HELLO, ADA" ]
. ./lib.sh
[ "$(greet you)" = "hello, you" ]
echo "3 tests passed"
