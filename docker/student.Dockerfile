# What students open, in one image:
#     autograder bundle
#     docker build --file docker/student.Dockerfile --tag llm-course build/bundle
#     docker run --rm --publish 127.0.0.1:8888:8888 --volume llm-work:/home/student/course/labs llm-course
FROM python:3.11-slim-bookworm
RUN useradd --create-home student
USER student
WORKDIR /home/student
COPY --chown=student efficient-llm-course-*.zip course.zip
RUN python -m zipfile -e course.zip . && rm course.zip && mv efficient-llm-course-* course
WORKDIR /home/student/course
RUN python course.py setup
EXPOSE 8888
CMD [".venv/bin/python", "-m", "jupyter", "lab", "--ip=0.0.0.0", "--no-browser"]
