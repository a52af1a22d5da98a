complete -c colors -l listen -d 'Address, or unix:PATH; repeatable' -r
complete -c colors -l unix-mode -d 'Permissions of a unix socket\'s file, octal' -r
complete -c colors -l seed -d 'Fills the list; never written' -r -F
complete -c colors -l data -d 'Keeps the list: each change is saved here before its answer' -r -F
complete -c colors -l base-path -d 'Path that everything is served below, as in /api' -r
complete -c colors -l workers -d 'Event loops, a thread each; default one per processor, at least 2' -r
complete -c colors -l max-body -d 'Longest content of a request, in bytes' -r
complete -c colors -l request-timeout -d 'For a request to arrive or an answer to be taken' -r
complete -c colors -l keep-alive -d 'Between two requests on a connection' -r
complete -c colors -l token-file -d 'Changes need a bearer token of this file; read again on SIGHUP' -r -F
complete -c colors -l allow-origin -d 'Let the web pages of this origin use it; repeatable' -r
complete -c colors -l allow-host -d 'Answer to this host name on loopback, too; repeatable' -r
complete -c colors -l log-level -d 'One of off, error, warn, info, debug' -r
complete -c colors -l read-only -d 'Allow only reads: POST, PUT and DELETE answer 405'
complete -c colors -l private -d 'Reads of colors need a token, too'
complete -c colors -l access-log -d 'Log a line for every request'
complete -c colors -s h -l help -d 'Print help'
complete -c colors -s V -l version -d 'Print version'
