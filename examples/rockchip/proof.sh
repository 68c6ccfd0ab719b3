#!/bin/sh
# Runs every job of a folder on this board's NPU and compares its outputs with the expected bytes.
#
#   proof.sh FOLDER > proof.txt
#
# FOLDER comes from a PC: python -m benchmarks.rockchip --save FOLDER. For each NAME.rkjob it has
# NAME.INPUT.bin and NAME.OUTPUT.bin. Needs intaglio-rk on the PATH or in INTAGLIO_RK.
set -u
folder=${1:?give the folder with .rkjob files}
tool=${INTAGLIO_RK:-intaglio-rk}

echo "kernel   $(uname -srm)"
[ -r /proc/device-tree/compatible ] && echo "board    $(tr '\0' ' ' < /proc/device-tree/compatible)"
"$tool" info || exit 2

failed=0
for job in "$folder"/*.rkjob; do
  [ -e "$job" ] || { echo "no .rkjob in $folder"; exit 2; }
  name=$(basename "$job" .rkjob)
  set -- "$job" --repeat "${RUNS:-20}"
  ports=$("$tool" ports "$job") || { failed=1; continue; }
  while read -r kind port _; do
    case $kind in
      input) set -- "$@" --input "$port=$folder/$name.$port.bin" ;;
      output) set -- "$@" --expect "$port=$folder/$name.$port.bin" ;;
    esac
  done <<END
$ports
END
  echo "job      $name"
  "$tool" run "$@" || failed=1
done
[ "$failed" = 0 ] && echo "result   all bytes equal" || echo "result   NOT equal, or an error"
exit "$failed"
