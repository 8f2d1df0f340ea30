rm "$0"; echo on; ls; foo() { caller; }; foo
no_such_thing
