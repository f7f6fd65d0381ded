#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Checks dCUDA on the GPUs of this machine: builds the cuda preset, runs the tests, examples and case studies on as many
# GPUs as there are, compute-sanitizer's memcheck, synccheck and racecheck, and the benchmarks, and times the case studies
# with all their models. Needs no root and no network; an hour and a half on two GPUs, and about 50 minutes on one,
# where tests of several processes are left out. CUDA_VISIBLE_DEVICES leaves it fewer.
#
#   scripts/gpu_check.sh [--build-only | --no-build] [--phases LIST] [--only REGEX] [--test-jobs N]
#
# --build-only   build, run nothing; works without a GPU
# --no-build     run what build/cuda (and build/cuda-delays) hold
# --phases LIST  only these, with commas: tests, delays, programs, processes, network, memcheck, synccheck, racecheck,
#                benchmarks, applications. Without it all: where a command may not last that long, call the script once for some
# --only REGEX   of compute-sanitizer's phases: programs whose names match, as the summary has them
# --test-jobs N  tests at a time (default 2), which CTest spreads over the GPUs. Few are quickest: processes that start take
#                turns in the driver (on a virtual machine with two GPUs 1.4 s alone, 21 s where 14 tests run)
#
# Logs, records and the summary go to ${OUT:-build/gpu_check}. Ends with 0 if nothing failed.
set -uo pipefail
cd "$(dirname "$0")/.." || exit

build=yes
runs=yes
test_jobs=2
only=.
phases=tests,delays,programs,processes,network,memcheck,synccheck,racecheck,benchmarks,applications
while [ $# -gt 0 ]; do
    case "$1" in
    --build-only) runs= ;;
    --no-build) build= ;;
    --phases)
        for name in ${2//,/ }; do
            [[ ",$phases," == *",$name,"* ]] || { echo "--phases: there is no $name; there are $phases" >&2; exit 2; }
        done
        [ -n "${2:-}" ] || { echo "--phases takes names, with commas: $phases" >&2; exit 2; }
        phases=$2
        shift
        ;;
    --only)
        only=${2:-}
        code=0
        grep -qE -- "$only" <<<"" || code=$?
        if [ -z "$only" ] || [ $code -gt 1 ]; then echo "--only takes a regular expression" >&2; exit 2; fi
        shift
        ;;
    --test-jobs)
        test_jobs=${2:-}
        [[ $test_jobs =~ ^[1-9][0-9]*$ ]] || { echo "--test-jobs takes a number, at least 1" >&2; exit 2; }
        shift
        ;;
    -h | --help) sed -n '3,/^set/s/^# \{0,1\}//p' "$0"; exit ;;
    *) echo "Use: $0 [--build-only | --no-build] [--phases LIST] [--only REGEX] [--test-jobs N]" >&2; exit 2 ;;
    esac
    shift
done
[ -n "$build$runs" ] || { echo "--build-only and --no-build leave nothing to do" >&2; exit 2; }

mkdir -p "${OUT:-build/gpu_check}" || exit
out=$(realpath "${OUT:-build/gpu_check}")
dir=build/cuda
delays_dir=build/cuda-delays
delayed_tests=(test_occupancy test_delivery test_put_notify test_notification test_wait test_barrier test_window test_mailbox test_stress)
bin=$PWD/$dir/bin
mapfile -t gpu_names < <(scripts/gpus.sh)
gpus=${#gpu_names[@]}
# Tests, examples and the memory checker must not depend on what the caller's shell says; nothing may use multicast.
unset DCUDA_RANKS_PER_DEVICE DCUDA_TAGS DCUDA_MAX_WINDOWS DCUDA_WAIT_TIMEOUT
export NVSHMEM_DISABLE_NVLS=1 NCCL_NVLS_ENABLE=0
rm -f "$out"/{build,tests,tests_of_processes,delays,programs,processes,network,benchmarks,applications}.log "$out"/{memcheck,synccheck,racecheck}{,.*}.log
summary=$out/summary.txt
: >"$summary"

# What runs when this script is stopped goes with it: timeout passes the signal on to all that it started.
child=
# shellcheck disable=SC2086 # There may be several.
trap '[ -z "$child" ] || kill $child 2>/dev/null; wait; exit 143' TERM INT HUP

passed=0 failed=0 skipped=0
say() { printf '%s\n' "$*" | tee -a "$summary"; }
pass() { passed=$((passed + 1)); say "  passed   $*"; }
fail() { failed=$((failed + 1)); say "  FAILED   $*"; }
skip() { skipped=$((skipped + 1)); say "  skipped  $*"; }

# Whether a phase was asked for.
wanted() { [[ ",$phases," == *",$1,"* ]]; }

# phase NAME FUNCTION: says how long it took. What fails in one does not keep the next from running.
phase() {
    local start=$SECONDS
    say "$1"
    "$2" </dev/null
    say "  ($((SECONDS - start)) s)"
}

# limited SECONDS LOG COMMAND...: the command under a time limit, its output appended to the log.
limited() {
    local limit=$1 log=$out/$2 code=0
    shift 2
    printf '\n$ %s\n' "$*" >>"$log"
    timeout --kill-after=15 "$limit" "$@" >>"$log" 2>&1 &
    child=$!
    wait "$child" || code=$?
    [ $code -eq 0 ] || printf '(exit status %d%s)\n' "$code" "$([ $code -ne 124 ] || echo ": not done after $limit s")" >>"$log"
    return $code
}

# attempt NAME SECONDS LOG COMMAND...: counts the outcome; 77 is a skip.
attempt() {
    local name=$1 limit=$2 log=$3 start=$SECONDS code=0
    shift 3
    limited "$limit" "$log" "$@" || code=$?
    case $code in
    0) pass "$name, $((SECONDS - start)) s" ;;
    77) skip "$name: $(grep -v '^(exit status' "$out/$log" | tail -n 1)" ;;
    124 | 137) fail "$name: not done after $limit s; see $log" ;;
    *) fail "$name: exit status $code; see $log" ;;
    esac
    return $code
}

# job PROCESSES PROGRAM ARGUMENT...: puts the command line of a job into `command`.
job() {
    local processes=$1
    shift
    command=("$@")
    [ "$processes" -eq 1 ] || command=("$bin/dcuda-run" -n "$processes" "$@")
}

# The numbers of processes to try: one per GPU.
counts=()
for count in 1 2 4; do
    [ "$count" -gt "$gpus" ] || counts+=("$count")
done

# --- Phases ----------------------------------------------------------------------------------------------------------

machine() {
    {
        date -u '+%Y-%m-%dT%H:%M:%SZ'
        echo "commit: ${DCUDA_COMMIT:-$(git rev-parse --short HEAD 2>/dev/null || echo unknown)}"
        echo "system: $(uname -sr), $(nproc) cores, $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo 2>/dev/null | head -n 1)"
        if [ "$gpus" -eq 0 ]; then
            echo "no GPU: scripts/gpus.sh finds none"
        else
            nvidia-smi -L | sed 's/ (UUID.*//'
            echo "driver: $(nvidia-smi --query-gpu=driver_version --format=csv,noheader | head -n 1)"
        fi
        nvcc --version 2>&1 | grep -E 'release|not found'
        cmake --version 2>&1 | head -n 1
        "${CXX:-c++}" --version 2>&1 | head -n 1
        # Without the columns that only NUMA and network cards fill.
        [ "$gpus" -lt 2 ] || nvidia-smi topo -m 2>&1 | sed 's/\x1b\[[0-9;]*m//g' | grep -E '^(\s+GPU|GPU)'
    } 2>/dev/null | sed 's/^/  /' | tee -a "$summary"
}

build() {
    local configure=(cmake --preset cuda -DCMAKE_BUILD_TYPE=Release -DDCUDA_WERROR=OFF)
    # Only for the GPUs that are here; without one, for those of the preset.
    [ "$gpus" -eq 0 ] || configure+=(-DCMAKE_CUDA_ARCHITECTURES=native)
    # A build directory keeps the generator that it was made with.
    if [ ! -e "$dir/CMakeCache.txt" ] && command -v ninja >/dev/null; then configure+=(-G Ninja); fi
    attempt "configure" 120 build.log "${configure[@]}" || { tail -n 15 "$out/build.log"; return; }
    # Whatever can be built is built, so that one broken program does not keep the others from running.
    local keep_going=(-- -k)
    grep -q '^CMAKE_GENERATOR:INTERNAL=Ninja' "$dir/CMakeCache.txt" && keep_going+=(0)
    attempt "build" 900 build.log cmake --build "$dir" --parallel "$(scripts/build_jobs.sh)" "${keep_going[@]}" ||
        grep -E 'error|FAILED|CMake Error' "$out/build.log" | head -n 20
    attempt "build of the benchmarks without checks" 300 build.log cmake --build "$dir" --parallel "$(scripts/build_jobs.sh)" \
        --target dcuda-bench-unchecked
    wanted delays || return 0
    attempt "configure with delays" 120 build.log "${configure[@]}" -B "$delays_dir" -DDCUDA_DELAYS=1 \
        -DDCUDA_BUILD_BENCHMARKS=OFF -DDCUDA_BUILD_APPS=OFF -DDCUDA_BUILD_EXAMPLES=OFF
    attempt "build with delays" 600 build.log cmake --build "$delays_dir" --parallel "$(scripts/build_jobs.sh)" \
        --target "${delayed_tests[@]}"
}

# The device tests again in a build in which warps come late wherever their order matters: twice, as each run has its own
# moments.
delays() {
    local name repetition
    for name in "${delayed_tests[@]}"; do
        [ -x "$delays_dir/bin/$name" ] || { fail "$name with delays: not built"; continue; }
        for repetition in 1 2; do
            attempt "$name with delays, run $repetition" 120 delays.log env DCUDA_WAIT_TIMEOUT=20 \
                "$delays_dir/bin/$name" --gtest_brief=1
        done
    done
}

# What CTest may give to tests (scripts/needs_gpus.sh): eight shares of each GPU, under its place in gpu_names. Prints the file.
gpu_shares() {
    python3 -c '
import json, sys
gpus = [{"id": str(place), "slots": 8} for place in range(int(sys.argv[1]))]
json.dump({"version": {"major": 1, "minor": 0}, "local": [{"gpus": gpus}]}, open(sys.argv[2], "w"))' "$gpus" "$out/gpus.json"
    echo "$out/gpus.json"
}

# Tests that start hundreds of processes, one after the other, by labels.
many_processes='apps|misuse|trace|litmus'
# Those of several processes one at a time: kernels of processes that share a GPU take turns, so that two such tests beside each
# other take ten times as long as alone (two H200, window.shm.p2: 4 s alone, 40 s beside another).
several_processes='\.p([2-9]|[1-9][0-9])(\.|$)'
tests() {
    local excluded="package|slow|model|host_only|$many_processes"
    registered_tests tests "$excluded" --exclude-regex "$several_processes"
    if [ "$gpus" -lt 2 ]; then skip "tests of several processes: they take 2 GPUs, and here are $gpus"; return; fi
    registered_tests tests_of_processes "$excluded" --tests-regex "$several_processes" --parallel 1
}
processes() { registered_tests processes 'package|slow|model|host_only' --label-regex "$many_processes"; }

# registered_tests NAME EXCLUDED OPTION...: CTest's tests without some labels; the log is NAME.log. CI runs what runs nothing
# on a GPU.
registered_tests() {
    local name=$1 excluded=$2 counts_line code=0
    shift 2
    [ -e "$dir/CTestTestfile.cmake" ] || { fail "$name: $dir has none"; return; }
    # The last --parallel counts.
    limited 2400 "$name.log" scripts/run_tests.sh "$dir" --parallel "$test_jobs" --label-exclude "$excluded" "$@" \
        --resource-spec-file "$(gpu_shares)" || code=$?
    counts_line=$(grep -E '^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$' "$out/$name.log" | tail -n 1)
    if [ -z "$counts_line" ]; then
        fail "$name: no result, exit status $code; see $name.log"
        tail -n 5 "$out/$name.log"
        return
    fi
    local tests_passed tests_failed tests_skipped
    read -r tests_passed _ tests_failed _ tests_skipped _ <<<"$counts_line"
    passed=$((passed + tests_passed)) failed=$((failed + tests_failed)) skipped=$((skipped + tests_skipped))
    say "  $name: $counts_line"
    grep -E '^(failed: |skipped)' "$out/$name.log" | sed 's/^/    /' | tee -a "$summary"
    [ $code -eq 0 ] || [ "$tests_failed" -gt 0 ] || fail "$name: exit status $code; see $name.log"
}

programs() {
    local source name count command
    for source in examples/*.cu examples/*/*.cu; do
        [ -e "$source" ] || continue
        name=$(basename "$source" .cu)
        if [ ! -x "$bin/$name" ]; then fail "example $name: not built"; continue; fi
        for count in "${counts[@]}"; do
            job "$count" "$bin/$name"
            attempt "example $name on $count GPU(s)" 60 programs.log "${command[@]}"
        done
    done
    for name in stencil particles spmv power_iteration; do
        if [ ! -x "$bin/$name" ]; then fail "$name: not built"; continue; fi
        for count in "${counts[@]}"; do
            job "$count" "$bin/$name" --verify
            # The serial reference of particles takes 11 s for each device.
            attempt "$name --verify on $count GPU(s)" 120 programs.log "${command[@]}"
        done
    done
    for count in "${counts[@]}"; do
        [ -x "$bin/stencil" ] || break
        job "$count" "$bin/stencil"
        attempt "stencil --fused on $count GPU(s)" 60 programs.log "${command[@]}" --fused --verify
        attempt "stencil --fields device on $count GPU(s)" 60 programs.log "${command[@]}" --fields device --verify
    done
    for count in "${counts[@]}"; do
        [ -x "$bin/himeno" ] || { fail "himeno: not built"; break; }
        job "$count" "$bin/himeno"
        attempt "himeno --no-fma --verify on $count GPU(s)" 60 programs.log "${command[@]}" --size M --no-fma --verify
        attempt "himeno, 1000 steps, on $count GPU(s)" 60 programs.log "${command[@]}" --size XS --steps 1000 --no-fma --verify
        attempt "himeno on $count GPU(s)" 60 programs.log "${command[@]}" --size L
        for grid in 1x$count 2x$((count / 2)); do
            [ $((${grid/x/*})) -eq "$count" ] || continue
            attempt "himeno --grid $grid on $count GPU(s)" 60 programs.log "${command[@]}" --size M --grid "$grid" --no-fma --verify
        done
    done
    for count in "${counts[@]}"; do
        [ -x "$bin/hpgmg" ] || { fail "hpgmg: not built"; break; }
        job "$count" "$bin/hpgmg"
        attempt "hpgmg --verify on $count GPU(s)" 60 programs.log "${command[@]}" --log2-box 5 --boxes 8 --v-cycles 1 --verify
        attempt "hpgmg on $count GPU(s)" 60 programs.log "${command[@]}" --log2-box 6 --boxes 8 --solves 10
    done
    for name in stream stream-graph kernel device-graph while-graph device-tail host host-graph; do
        [ -x "$bin/himeno" ] || break
        for count in "${counts[@]}"; do
            job "$count" "$bin/himeno" --size S --steps 64 --no-fma --verify --control $name
            if [ $name = host-graph ] && { [ "$count" -eq 1 ] || [ ! -x "$bin/himeno_nccl" ]; }; then continue; fi
            attempt "himeno --control $name on $count GPU(s)" 60 programs.log "${command[@]}"
        done
    done
    models stencil --fused --fused "plain plain-graph" host stream stream-graph nccl nccl-graph nvshmem "nvshmem --stores" mpi
    models spmv "" "--grid 1x2" "plain plain-graph" host nccl nccl-graph "nccl --no-barrier" mpi
    models power_iteration "" "--grid 1x2" plain host nccl nvshmem mpi
    models hpgmg "--v-cycles 1" "--overlap-from 1000" "plain plain-graph" host stream stream-graph nccl nccl-graph mpi
    models hpgmg "--v-cycles 1" "--smoother chebyshev" "fused fused-graph" fused fused-graph
}

# What a case study is compared with: plain on one GPU, the others on two; each as it is, and with an option.
models() {
    local name=$1 alone=$2 together=$3 plain=$4 model library option options command
    shift 4
    [ -x "$bin/$name" ] || return 0
    for model in $plain; do
        options=("")
        [ -z "$alone" ] || options+=("$alone")
        for option in "${options[@]}"; do
            # shellcheck disable=SC2086
            attempt "$name --model $model $option" 60 programs.log "$bin/$name" --model $model $option --verify
        done
    done
    if [ "$gpus" -lt 2 ]; then skip "the other models of $name: they take 2 GPUs, and here are $gpus"; return; fi
    for model in "$@"; do
        library=${model%%[- ]*}
        if [[ ! $library =~ ^(host|stream|fused)$ ]] && [ ! -x "$bin/${name}_$library" ]; then
            skip "$name --model $model: its library was not here when the build was configured"
            continue
        fi
        job 2 "$bin/$name"
        if [ "$model" = mpi ]; then
            if ! command -v mpirun >/dev/null; then skip "$name --model mpi: no mpirun"; continue; fi
            command=(mpirun -n 2 "$bin/$name")
            if mpirun --version 2>&1 | grep -q 'Open MPI'; then
                command=(mpirun --allow-run-as-root --oversubscribe --bind-to none -n 2 "$bin/$name")
            fi
        fi
        for option in "" "$together"; do
            # shellcheck disable=SC2086
            attempt "$name --model $model $option" 60 programs.log "${command[@]}" --model $model $option --verify
        done
        [ "$model" != host ] || attempt "$name --model host through pinned memory" 60 programs.log \
            env DCUDA_DISABLE_PEER=1 "${command[@]}" --model host --verify
    done
}

# All traffic through the hosts, over each transport that was built: the same programs, and what only a network has.
network() {
    if [ "$gpus" -lt 2 ]; then skip "network: takes 2 GPUs, and here are $gpus"; return; fi
    local transport command transports=(shm)
    if [ -e "$dir/lib/dcuda/libdcuda_ofi.so" ]; then
        transports+=(ofi:shm ofi:tcp)
    else
        skip "network over libfabric: it is not here"
    fi
    for transport in "${transports[@]}"; do
        for command in test_network_path test_copy test_stress "stencil --verify" "particles --verify" "spmv --verify" \
            "power_iteration --verify"; do
            # shellcheck disable=SC2086
            attempt "$command over $transport" 60 network.log env DCUDA_DISABLE_PEER=1 DCUDA_TRANSPORT=$transport \
                "$bin/dcuda-run" -n 2 "$bin"/$command
        done
        for command in "latency --sizes 8,1024,65536 --threads 128" messages; do
            # shellcheck disable=SC2086
            attempt "dcuda-bench $command over $transport" 60 network.log env DCUDA_DISABLE_PEER=1 \
                DCUDA_TRANSPORT=$transport "$bin/dcuda-run" -n 2 "$bin/dcuda-bench" $command \
                --json "$out/${command%% *}-${transport/:/-}.json"
        done
    done
    grep -E '^remote' "$out/network.log" | sed 's/^/    /' | tee -a "$summary"
}

# The programs of the device tests, as they run without a launcher, one a line.
device_tests() {
    ctest --test-dir "$dir" --show-only=json-v1 2>/dev/null | python3 -c '
import json, os, sys
seen = set()
for test in json.load(sys.stdin)["tests"]:
    labels = next((p["value"] for p in test.get("properties", []) if p["name"] == "LABELS"), [])
    command = test.get("command", [])
    command = [word for word in command if os.path.basename(word).startswith("test_")]
    if "device" in labels and command and command[0] not in seen:
        seen.add(command[0])
        print(command[0])'
}

# Whether a tool, whose output this reads, has counted nothing but its remark that it does not look into kernels which others
# launch.
has_remarks_only() {
    awk '/(RACECHECK|ERROR) SUMMARY: [0-9]+ / { counted += $4 } /Dynamic Parallelism is not supported/ { ++remarks }
         END { exit !(counted > 0 && counted == remarks) }'
}

# checked NAME SECONDS COMMAND...: under compute-sanitizer's $tool, unless another GPU's turn has taken that program. Exit
# status 86 says that it found errors. CUDA calls that fail are no finding: the library probes, and some tests break rules on
# purpose.
checked() {
    local name=$1 limit=$2 start=$SECONDS code=0 lines
    local sanitizer=(compute-sanitizer --tool "$tool" --error-exitcode 86)
    [ "$tool" != memcheck ] || sanitizer+=(--report-api-errors no)
    shift 2
    [[ $name =~ $only ]] || return 0
    mkdir "$taken/$name" 2>/dev/null || return 0
    touch "$out/$log"
    lines=$(wc -l <"$out/$log")
    limited "$limit" "$log" "${sanitizer[@]}" "$@" || code=$?
    if [ $code -eq 86 ] && [ "$tool" != memcheck ] && tail -n "+$((lines + 1))" "$out/$log" | has_remarks_only; then code=0; fi
    case $code in
    0) pass "$tool of $name, $((SECONDS - start)) s" ;;
    77) skip "$tool of $name: the program skips itself here" ;;
    86) fail "$tool of $name: errors; see $log" ;;
    124 | 137) fail "$tool of $name: not done after $limit s under the checker" ;;
    *) fail "$tool of $name: exit status $code; see $log" ;;
    esac
}

# The device tests, with as many ranks as they ask for, the one of occupancy so many that they fill the GPU; then small case
# studies. DCUDA_TEST_ROUNDS makes a test short, for the tools slow a kernel down by a factor of 10 to 1000. racecheck is
# the slowest: with DCUDA_TEST_ONE_WAY tests of many ranks try one way of several.
checked_programs() {
    # CUDA counts arrivals at a block's barrier by thread, this tool by warp: it takes threads of a warp that leave the
    # kernel in different places for an error.
    local filter=() program
    [ "$tool" != synccheck ] || filter=(--gtest_filter=-*ThreadsMayLeaveInDifferentPlaces)
    # Threads of a warp that wait for each other in a loop do so for ever under this tool; and it knows barriers alone, not
    # counts by which warps hand over to each other.
    [ "$tool" != racecheck ] || filter=(--gtest_filter=-CudaHeaders.Atomic*:Parts.*Warp*)
    [ "$tool" != racecheck ] || export DCUDA_TEST_ONE_WAY=1
    local shard shards
    for program in "${programs[@]}"; do
        # racecheck takes minutes for the collectives: googletest cuts them into shares, which the GPUs take in turn.
        shards=1
        [[ $tool != racecheck || $program != */test_collective* ]] || shards=4
        for ((shard = 0; shard < shards; shard++)); do
            GTEST_TOTAL_SHARDS=$shards GTEST_SHARD_INDEX=$shard DCUDA_TEST_ROUNDS=2 \
                checked "$(basename "$program")$([ $shards = 1 ] || echo ", share $((shard + 1)) of $shards")" 480 \
                "$program" --gtest_brief=1 "${filter[@]}"
        done
    done
    export DCUDA_RANKS_PER_DEVICE=4
    checked "dcuda-bench latency" 60 "$bin/dcuda-bench" latency --sizes 4,60,1024,65536 --threads 32,128 --rounds 10 --batches 2
    # Lines in shared memory are read beyond their end, where another warp may be writing: nobody uses what is read there.
    local fields=()
    [ "$tool" != racecheck ] || fields=(--fields device)
    [ ! -x "$bin/stencil" ] ||
        checked "stencil" 60 "$bin/stencil" --nx 20 --ny 13 --nz 3 --iterations 5 --threads 64 --verify "${fields[@]}"
    [ ! -x "$bin/particles" ] ||
        checked "particles" 60 "$bin/particles" --width 20 --height 13 --particles 500 --steps 5 --threads 64 --verify
    [ ! -x "$bin/spmv" ] ||
        checked "spmv" 60 "$bin/spmv" --rows 201 --density 0.1 --repetitions 5 --threads 64 --verify
    [ ! -x "$bin/power_iteration" ] ||
        checked "power_iteration" 60 "$bin/power_iteration" --rows 201 --density 0.1 --iterations 5 --threads 64 --verify
    [ ! -x "$bin/himeno" ] || checked "himeno" 60 "$bin/himeno" --size 9,17,33 --steps 5 --threads 64 --no-fma --verify
    [ ! -x "$bin/himeno" ] ||
        checked "himeno by short kernels" 60 "$bin/himeno" --size 9,17,33 --steps 5 --control kernel --no-fma --verify
    [ ! -x "$bin/hpgmg" ] || checked "hpgmg" 60 "$bin/hpgmg" --log2-box 4 --boxes 1 --threads 64 --verify
    [ ! -x "$bin/hpgmg" ] || checked "hpgmg by fused kernels" 60 env -u DCUDA_RANKS_PER_DEVICE "$bin/hpgmg" --log2-box 4 --boxes 1 --model fused --verify
}

# One of compute-sanitizer's tools over all programs, on each GPU one at a time.
sanitizer() {
    local tool=$1 log=$1.log programs taken gpu before workers=()
    if ! command -v compute-sanitizer >/dev/null; then skip "$tool: compute-sanitizer is not on the PATH"; return; fi
    # A short run shows whether the checker can attach here at all.
    limited 60 "$log" env DCUDA_RANKS_PER_DEVICE=2 compute-sanitizer --tool "$tool" "$bin/dcuda-bench" \
        latency --sizes 64 --threads 32 --rounds 2 --batches 1
    if ! grep -qE 'ERROR SUMMARY|RACECHECK SUMMARY' "$out/$log" ||
        grep -qE 'not supported|Unable to|InternalError' "$out/$log"; then
        skip "$tool: compute-sanitizer cannot attach here: $(grep -E '^=+ .*(Error|not supported|Unable)' "$out/$log" | head -n 1)"
        return
    fi
    mapfile -t programs < <(device_tests)
    [ ${#programs[@]} -gt 0 ] || fail "$tool of the tests: none is labelled device"
    taken=$(mktemp -d)
    before=$(wc -l <"$summary")
    for gpu in "${gpu_names[@]}"; do
        (
            trap '[ -z "$child" ] || kill "$child" 2>/dev/null; wait; exit 143' TERM
            export CUDA_VISIBLE_DEVICES=$gpu
            log=$tool.$gpu.log
            checked_programs
        ) &
        workers+=($!)
    done
    child=${workers[*]}
    wait "${workers[@]}"
    # What the GPUs' shells have counted went with them.
    counted() { tail -n "+$((before + 1))" "$summary" | grep -c "^  $1 "; }
    passed=$((passed + $(counted passed))) failed=$((failed + $(counted FAILED))) skipped=$((skipped + $(counted skipped)))
    rm -r "$taken"
}
memcheck() { sanitizer memcheck; }
synccheck() { sanitizer synccheck; }
racecheck() { sanitizer racecheck; }

benchmarks() {
    attempt "benchmarks" 600 benchmarks.log benchmarks/run.sh "$dir" "$out"
}

applications() {
    local devices commit
    devices=$(IFS=, && echo "${counts[*]}")
    commit=${DCUDA_COMMIT:-$(git rev-parse --short HEAD 2>/dev/null || echo unknown)}
    attempt "case studies with all models" 900 applications.log "$bin/dcuda-bench" apps --devices "$devices" \
        --time-limit 60 --commit "$commit" --json "$out/applications.json"
}

# --- The run ---------------------------------------------------------------------------------------------------------

phase "Machine" machine
[ -z "$build" ] || phase "Build" build
if [ -n "$runs" ]; then
    if [ "$gpus" -eq 0 ]; then
        fail "no GPU: scripts/gpus.sh finds none"
    elif [ ! -x "$bin/dcuda-run" ]; then
        fail "nothing to run: $dir is not built"
    else
        for name in ${phases//,/ }; do
            phase "$name" "$name"
            case $name in
            benchmarks | applications) [ ! -e "$out/$name.log" ] || sed '/^\$ /d' "$out/$name.log" | tee -a "$summary" ;;
            esac
        done
    fi
fi
say ""
say "$passed passed, $failed failed, $skipped skipped in $SECONDS s; logs in $out"
[ "$failed" -eq 0 ]
