"""What students get where they must not have the repository: labs, chapters and efflib in part."""
