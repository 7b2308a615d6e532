"""REST: the control plane's public interface for programs."""
