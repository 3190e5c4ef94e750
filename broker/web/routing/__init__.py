"""What a route is: its parameters, bodies and answers, and how what is wrong is said."""
