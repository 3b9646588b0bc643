"""`python -m tilegrad` is the command `tilegrad`."""

from tilegrad.cli import main

raise SystemExit(main())
