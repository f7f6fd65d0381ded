# For the scripts beside this one.

# refused REASON PROCESSES OPTION...: ends by itself, with an error that names the reason.
refused() {
    local reason=$1 status=0
    shift
    job "$@" >"$work/log" 2>&1 || status=$?
    [ $status -ne 0 ] || die "no error: $*"
    [ $status -ne 124 ] || die "hangs: $*"
    grep -q -- "$reason" "$work/log" || die "does not say '$reason': $*"
    runs=$((runs + 1))
}
