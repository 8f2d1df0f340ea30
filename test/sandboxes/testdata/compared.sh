# Makes the context of compared.txt in the current directory, and the root file system of its base.
set -e
mkdir -p ctx/dir/nested ctx/more ctx/links/d ctx/modes/d ctx/ignore/keep tree/sub root/etc root/opt/old root/tmp root/bin
cd ctx; umask 022
echo A > a.txt; echo B > b.txt; echo f > dir/f; echo n > dir/nested/n; mkdir dir/empty; echo g > more/f; echo h > more/h
echo x > links/d/x; ln -s d/x links/to-file; ln -s d links/to-dir; ln -s /nowhere links/absolute; ln -s ../../up links/up
echo 1 > modes/1; chmod 711 modes/1; echo 2 > modes/2; chmod 600 modes/2; chmod 2775 modes/d; chown 3:4 modes/2
echo i > ignore/i.log; echo k > ignore/keep/k.log; echo o > ignore/o
printf '**/*.log\n!ignore/keep/*\n*.md\n' > .dockerignore; echo md > README.md
cd ../tree; echo t > t; echo s > sub/s; ln -s t link; ln t hard; chown 5:6 sub/s; chmod 2750 sub; chmod 4755 t
tar -cf ../ctx/tree.tar .; cd ../ctx; gzip -k tree.tar; python3 -c 'import bz2;open("tree.tar.bz2","wb").write(
bz2.compress(open("tree.tar","rb").read()));import lzma;open("tree.tar.xz","wb").write(
lzma.compress(open("tree.tar","rb").read()))'; echo packed | gzip > packed.gz
cd ../root; printf 'root:x:0:0::/root:/bin/sh\nada:x:41:42::/home/ada:/bin/sh\n' > etc/passwd
printf 'root:x:0:\nstaff:x:50:ada\nada:x:42:\n' > etc/group; echo old > opt/old/f; chmod 1777 tmp
for p in sh mkdir ln rm chmod chown cat mkfifo setpriv; do f=$(command -v $p); cp -L $f bin/$p
  for lib in $(ldd $f | grep -o '/[^ ]*\.so[^ ]*'); do mkdir -p .$(dirname $lib); cp -L $lib .$lib; done; done
mkdir -p usr/bin; cp bin/setpriv usr/bin/setpriv; mkdir proc sys dev run; touch etc/hosts etc/hostname etc/resolv.conf
tar -cf ../base.tar .
