set -e; trap 'echo end $?' EXIT; echo on; false; echo never
