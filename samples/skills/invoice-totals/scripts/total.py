"""Print the total of amounts: 2 % discount from 1,000 on, rounded once."""

import sys
from decimal import ROUND_HALF_UP, Decimal

total = sum(map(Decimal, sys.argv[1:]), Decimal(0))
if total >= 1000:
    total *= Decimal("0.98")
print(f"Total: {total.quantize(Decimal('0.01'), ROUND_HALF_UP)}")
