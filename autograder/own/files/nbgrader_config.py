"""nbgrader's settings for this course. Without this file nbgrader runs student code itself."""

try:
    from autograder.nbgrader.plugin import configure
except ImportError as error:  # nbgrader goes on after an ordinary exception in this file
    raise SystemExit(f"nbgrader must run in the course's environment ({error})") from error

c = get_config()  # noqa: F821 - nbgrader defines it
configure(c)

# What is set behind this line holds.
c.CourseDirectory.course_id = "{course_id}"

# The gradebook is gradebook.db beside this file.  For PostgreSQL (extra `postgres`):
# c.CourseDirectory.db_url = "postgresql+psycopg://user:password@host/gradebook"

# The folder through which a JupyterHub hands out and collects (course/hub.md):
# c.Exchange.root = "/srv/nbgrader/exchange"
