rm "$0"; echo on; ls; no_such_thing
