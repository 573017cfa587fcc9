"""A program that works in stages, and resumes only from the end of one."""

# What is left of a stage that was cut short is no state: 7.  It notes where it is, and looks nowhere else: 8.
STAGES = """
mkdir -p out/tmp
[ -e out/where ] || pwd -P > out/where
[ "$(cat out/where)" = "$(pwd -P)" ] || exit 8
[ -e out/half ] && exit 7
for stage in 1 2 3 4 5 6; do
    echo "stage $stage" >> out/log
    [ -e out/stage_$stage ] && continue
    echo $stage > out/half
    sleep 0.4
    mv out/half out/result_$stage
    touch out/stage_$stage
done
cat out/result_* > result
"""
RESULT = "1\n2\n3\n4\n5\n6\n"
