#!/bin/sh
# Where Apache's image has its tool, for the same health check: here it only sees whether the port answers.
exec nc -w 1 "${2%:*}" "${2#*:}" < /dev/null
