"""What several folders of tests share: private servers, and waiting without sleeping blindly."""
