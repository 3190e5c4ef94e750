"""`status`: the jobs whose directories lie here, without Spark or a broker."""

from pathlib import Path

from pqbroker.pipeline.commands.parsing import Answer, Options, Parser
from pqbroker.pipeline.state import find_jobs


def declare(one: Parser) -> None:
    """Declare the command's arguments."""
    here = Path()
    one.add_argument(
        "directories", type=Path, nargs="*", default=[here], metavar="DIR",
        help="directory of a job (--to or --state), or one with such directories in it; default: the present one",
    )  # fmt: skip


def plan(parser: Parser, options: Options) -> Answer:
    """A line for each job."""
    jobs = [job for directory in options.directories for job in find_jobs(directory)]
    return Answer(tuple(job.line() for job in jobs) or ("no jobs; name the directories they were given",))
