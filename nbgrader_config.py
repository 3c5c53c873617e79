"""nbgrader's settings for this course. Without this file nbgrader runs student code itself."""

try:
    from autograder.nbgrader.plugin import configure
except ImportError as error:  # nbgrader goes on after an ordinary exception in this file
    raise SystemExit(f"nbgrader must run in the course's environment ({error})") from error

c = get_config()  # noqa: F821 - nbgrader defines it
configure(c)

# The gradebook is gradebook.db beside this file.  For PostgreSQL (extra `postgres`):
# c.CourseDirectory.db_url = "postgresql+psycopg://user:password@host/gradebook"
