"""What `plan` answers with: one layout evaluated, why another is worse, what would help, scans."""
