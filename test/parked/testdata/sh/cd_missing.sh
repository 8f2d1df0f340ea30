cd /nowhere; echo $?; cd /tmp; pwd; cd -; pwd
