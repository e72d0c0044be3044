# Exit 0 with the result if the payment was made, 3 if it was not.
if grep -q "^$1," payments.csv 2>/dev/null; then echo "paid $2"; else exit 3; fi
