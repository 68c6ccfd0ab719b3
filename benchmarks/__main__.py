"""`make bench`: start-up times, then latency beside the peers."""

import sys

from benchmarks import compare, startup

print("## Start-up\n")
startup.main()
print("\n## Latency\n")
sys.argv = sys.argv[:1]
compare.main()
