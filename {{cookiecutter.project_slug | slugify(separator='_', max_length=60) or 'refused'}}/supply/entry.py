"""What `spark-submit` is given: the command line, from the archive that Spark unpacked beside it, if it did.

With the driver in the cluster all that it needs lies in `environment/`; with the driver here it is installed.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

HERE = Path("environment").absolute()

if HERE.is_dir():
    sys.path.insert(0, str(HERE / "lib"))
    os.environ.setdefault("PIPELINE_JARS", str(HERE / "jars"))
    os.chdir(HERE / "project")

if __name__ == "__main__":
    from pipeline.cli import main

    main()
