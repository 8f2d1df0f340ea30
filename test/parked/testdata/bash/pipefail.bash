set -o pipefail; false | true; echo $? "${PIPESTATUS[@]}"; yes | head -1; echo $? "${PIPESTATUS[@]}"
